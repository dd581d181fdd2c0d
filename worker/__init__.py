"""The agent on a node: claims runs, executes each in a pinned trainer, and delivers the results."""

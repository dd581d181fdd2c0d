"""The agent on a node. It claims runs, executes each in a pinned trainer, and delivers the results."""

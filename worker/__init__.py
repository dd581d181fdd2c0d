"""The agent on a node: claims runs from the server, has a pinned trainer execute each, and delivers what came of it."""

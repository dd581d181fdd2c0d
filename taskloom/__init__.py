"""The public face of Taskloom: the command line and `taskloom.Client`, the Python SDK."""

from taskloom.client import Client
from taskloom.errors import Problem, ServerUnreachable, TaskloomError

__all__ = ["Client", "Problem", "ServerUnreachable", "TaskloomError"]

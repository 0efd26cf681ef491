"""An etcd, or a Kubernetes API server, for tests that control its time, faults and history."""

from .control import Control, ControlError
from .launch import StartError
from .server import ApiServer, Server

__all__ = ["ApiServer", "Control", "ControlError", "Server", "StartError"]

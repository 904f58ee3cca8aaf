# SPDX-License-Identifier: MIT
"""Sessions of the binary as forks of a process that has libtorch loaded (tests/support/session_server.cpp)."""

import array
import os
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path


class WarmProgram:
    def __init__(self, server):
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(
                [server, "--socket", str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )

    def close(self):
        self.socket.close()
        self.process.wait()

    def run(self, command, stdin=None, timeout=600):
        """As subprocess.run() with capture_output; `command` begins with the binary."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin or b"")
            given.seek(0)
            # Packages of Python set variables for themselves (TORCHINDUCTOR_CACHE_DIR): those of a test alone.
            changed = [
                (name, value)
                for name, value in os.environ.items()
                if name.startswith(("HF_", "FINETUNE_")) and self.environment.get(name) != value
            ]
            variables = [part for item in changed for part in item]
            # text_of() of session_request.h
            parts = [command[0], os.getcwd(), "", str(len(changed)), *variables, *command[1:]]
            text = b"".join(part.encode() + b"\0" for part in parts)
            rights = array.array("i", [given.fileno(), out.fileno(), err.fileno()])
            self.socket.settimeout(timeout)
            self.socket.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            (session,) = struct.unpack("i", self.socket.recv(4))
            try:
                status, _ = struct.unpack("iq", self.socket.recv(16))
            except TimeoutError:
                os.kill(session, signal.SIGKILL)
                self.socket.recv(16)
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out.read(), err.read())


_warm = {}


def run_program(command, stdin=None, timeout=600):
    """Runs the binary warm where its server is next to it, else as a new process."""
    server = Path(command[0]).with_name("finetune_session_server")
    if not server.is_file():
        return subprocess.run(command, input=stdin, capture_output=True, timeout=timeout)
    if server not in _warm:
        _warm[server] = WarmProgram(str(server))
    return _warm[server].run(command, stdin, timeout)


def stop():
    """Ends the servers, so that their time counts as this process's."""
    for warm in _warm.values():
        warm.close()
    _warm.clear()

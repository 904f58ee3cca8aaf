# SPDX-License-Identifier: MIT
"""A disk that logs every write and every cache flush, for power cuts of real file systems.

The disk is a file of a small FUSE server below a loop device. The kernel's file system on it waits
for its writes and flushes as on any disk with a volatile write cache, so the log shows what such a
disk may hold after a power cut at any moment: everything up to the last completed flush, and any
subset of the blocks written later (dm-log-writes does the same with a device mapper).

Needs root, /dev/fuse and loop devices. Linux only.
"""

import bisect
import ctypes
import errno
import fcntl
import os
import random
import signal
import stat
import struct
import subprocess
import time
from pathlib import Path

BLOCK = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 1 << 14, 1 << 18
CLONE_NEWNS = 1 << 17
PR_SET_PDEATHSIG = 1
MNT_DETACH = 2

# linux/fuse.h
(LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR,
 INTERRUPT, DESTROY, BATCH_FORGET) = (
    1, 2, 3, 4, 14, 15, 16, 17, 18, 20, 25, 26, 27, 36, 38, 42)  # fmt: skip
IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
LARGEST_WRITE = 1 << 20
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22

# linux/loop.h
LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LOOP_CLR_FD = 0x4C82, 0x4C0A, 0x4C01
LOOP_AUTOCLEAR = 4

# time.monotonic(), offset, length; the offset FLUSHED marks a flush
LOG_ENTRY = struct.Struct("<dQQ")
FLUSHED = (1 << 64) - 1


FOLDER_PREFIX = "finetune-cuts-"  # of folders where disks are mounted


class Unable(Exception):
    """This machine does not support it: no root, no FUSE, no loop device, or no such file system."""


def mount(source, target, kind, options="", flags=0):
    done = LIBC.mount(str(source).encode(), str(target).encode(), kind.encode(),
                      ctypes.c_ulong(flags), options.encode())  # fmt: skip
    if done != 0:
        code = ctypes.get_errno()
        raise Unable(f"cannot mount {kind} ({options}): {os.strerror(code)}")


def own_mounts():
    """Makes mounts of this process private; they disappear with it."""
    if LIBC.unshare(CLONE_NEWNS) != 0:
        raise Unable(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    mount("none", "/", "none", flags=MS_REC | MS_PRIVATE)
    # Processes with copies of these mounts would keep their disks busy, and their UUIDs.
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        target = line.split()[1]
        if f"/{FOLDER_PREFIX}" in target:
            LIBC.umount2(target.encode(), MNT_DETACH)


def unmount(target, lazily=False):
    """Unmounts; waits while a killed process still has open files."""
    for _ in range(500):
        if LIBC.umount2(str(target).encode(), MNT_DETACH if lazily else 0) == 0:
            return
        if ctypes.get_errno() != errno.EBUSY:
            break
        time.sleep(0.01)
    raise OSError(ctypes.get_errno(), f"cannot unmount {target}")


class LoopDevice:
    """A block device over a file. It is removed when it is closed and not mounted."""

    def __init__(self, file):
        try:
            backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            self.descriptor, self.path = self._configure(backing, str(file))
            os.close(backing)
        except OSError as error:
            raise Unable(f"no loop device: {error}") from error

    @staticmethod
    def _configure(backing, name):
        config = struct.pack("<II", backing, 0)
        config += struct.pack("<5Q4I", 0, 0, 0, 0, 0, 0, 0, 0, LOOP_AUTOCLEAR)
        config += name.encode()[:63].ljust(64, b"\0") + bytes(64 + 32 + 16 + 64)
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(100):
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
                path = f"/dev/loop{number}"
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(descriptor, LOOP_CONFIGURE, config)
                    return descriptor, path
                except OSError as error:
                    os.close(descriptor)
                    if error.errno != errno.EBUSY:  # another process was faster
                        raise
            raise OSError(errno.EBUSY, "every loop device is taken again at once")
        finally:
            os.close(control)

    def close(self):
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _Server:
    """The FUSE server of one file, `disk`, stored in an image file, and of its log."""

    def __init__(self, fuse, image, log):
        self.fuse, self.image, self.log = fuse, image, log
        self.size = os.fstat(image).st_size

    def attributes(self, node):
        mode = stat.S_IFDIR | 0o700 if node == 1 else stat.S_IFREG | 0o600
        size = 0 if node == 1 else self.size
        return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0,
                           BLOCK, 0)  # fmt: skip

    def serve(self):
        while True:
            try:
                request = os.read(self.fuse, LARGEST_WRITE + BLOCK)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return  # unmounted
            _, code, unique, node, *_ = IN_HEADER.unpack_from(request)
            if code in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            failure, answer = self.answer(code, node, request[IN_HEADER.size :])
            header = OUT_HEADER.pack(OUT_HEADER.size + len(answer), -failure, unique)
            try:
                os.write(self.fuse, header + answer)
            except OSError:
                continue  # the kernel no longer waits for the answer

    def answer(self, code, node, body):
        if code == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            data = body[40 : 40 + size]
            os.write(self.log, LOG_ENTRY.pack(time.monotonic(), offset, size) + data)
            os.pwrite(self.image, data, offset)
            return 0, struct.pack("<II", size, 0)
        if code == FSYNC:
            os.write(self.log, LOG_ENTRY.pack(time.monotonic(), FLUSHED, 0))
            return 0, b""
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return 0, os.pread(self.image, size, offset)
        if code == INIT:
            return 0, struct.pack("<4IHHIIHH8I", 7, 31, 1 << 17, BIG_WRITES | MAX_PAGES, 16, 12,
                                  LARGEST_WRITE, 1, LARGEST_WRITE // BLOCK, 0, *([0] * 8))  # fmt: skip
        if code == LOOKUP:
            if node != 1 or body.rstrip(b"\0") != b"disk":
                return errno.ENOENT, b""
            return 0, struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + self.attributes(2)
        if code in (GETATTR, SETATTR):
            return 0, struct.pack("<Q2I", 3600, 0, 0) + self.attributes(node)
        if code in (OPEN, OPENDIR):
            return 0, struct.pack("<QII", 0, 0, 0)
        if code in (RELEASE, FLUSH, DESTROY):
            return 0, b""
        return errno.ENOSYS, b""


class LoggedDisk:
    """Serves a copy of the blocks of a formatted disk until it is closed."""

    def __init__(self, folder, blocks, size):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.served = self.folder / "served"
        self.served.mkdir(exist_ok=True)
        self.log_path = self.folder / "log"
        image_path = self.folder / "image"
        write_image(image_path, blocks, size)
        try:
            fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Unable(f"no FUSE: {error}") from error
        image = os.open(image_path, os.O_RDWR | os.O_CLOEXEC)
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        mount("finetune-logged-disk", self.served, "fuse",
              f"fd={fuse},rootmode=40000,user_id=0,group_id=0", MS_NOSUID | MS_NODEV)  # fmt: skip
        self.process = os.fork()
        if self.process == 0:
            try:
                LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                _Server(fuse, image, log).serve()
            finally:
                os._exit(0)
        for descriptor in (fuse, image, log):
            os.close(descriptor)
        try:
            self.device = LoopDevice(self.served / "disk")
        except Unable:
            self.end()
            raise

    def end(self):
        unmount(self.served, lazily=True)
        os.waitpid(self.process, 0)

    def close(self):
        """Returns the log. Requires: nothing is mounted."""
        self.device.close()
        self.end()
        return read_log(self.log_path)


def read_log(path):
    """Returns [(time, offset, data)]; data is None for a flush."""
    raw = Path(path).read_bytes()
    entries, at = [], 0
    while at < len(raw):
        when, offset, size = LOG_ENTRY.unpack_from(raw, at)
        at += LOG_ENTRY.size
        if offset == FLUSHED:
            entries.append((when, 0, None))
        else:
            entries.append((when, offset, raw[at : at + size]))
            at += size
    return entries


def blocks_of(path):
    """Returns the blocks of an image that are not all zeros."""
    blocks, zeros = {}, bytes(BLOCK)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break
            until = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            for start in range(at, until, BLOCK):
                data = os.pread(file.fileno(), BLOCK, start)
                if data != zeros:
                    blocks[start // BLOCK] = data.ljust(BLOCK, b"\0")
            at = until
    return blocks


def write_image(path, blocks, size):
    Path(path).unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)
        for number, data in blocks.items():
            os.pwrite(file.fileno(), data, number * BLOCK)


class Cuts:
    """Possible contents of the disk after a power cut, for increasing positions in a log."""

    def __init__(self, blocks, log):
        self.log = log
        self.times = [entry[0] for entry in log]
        self.flushed = dict(blocks)  # contents at the last flush
        self.waiting = []  # [(block, offset in it, data)] written since
        self.position = 0

    def index_at(self, moment):
        """Returns the number of writes and flushes before a moment."""
        return bisect.bisect_left(self.times, moment)

    def advance(self, position):
        assert position >= self.position
        for _, offset, data in self.log[self.position : position]:
            if data is None:
                for piece in self.waiting:
                    put(self.flushed, piece)
                self.waiting = []
            else:
                self.waiting.extend(pieces_of(offset, data))
        self.position = position

    def state(self, chance, kept):
        """Returns the blocks after a cut at this position. `kept` is the fraction of the blocks in the
        disk's cache that were written: 1 for all, as in an image cloned at one moment."""
        blocks = dict(self.flushed)
        for piece in self.waiting:
            if kept >= 1 or chance.random() < kept:
                put(blocks, piece)
        return blocks


def pieces_of(offset, data):
    at = 0
    while at < len(data):
        block, start = divmod(offset + at, BLOCK)
        length = min(BLOCK - start, len(data) - at)
        yield block, start, data[at : at + length]
        at += length


def put(blocks, piece):
    block, start, data = piece
    if len(data) == BLOCK:
        blocks[block] = data
        return
    old = blocks.get(block, bytes(BLOCK))
    blocks[block] = old[:start] + data + old[start + len(data) :]


class FileSystem:
    """A file system of the kernel, and how it is created and mounted."""

    def __init__(self, name, kind, megabytes, make, options=""):
        self.name, self.kind, self.size = name, kind, megabytes << 20
        self.make, self.options = make, options

    def missing(self):
        """Returns why it cannot be tested here; empty: it can."""
        if os.geteuid() != 0:
            return "not root"
        known = [line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()]
        if self.kind not in known:
            # mount may load it as a module.
            subprocess.run(["modprobe", self.kind], capture_output=True, check=False)
            known = Path("/proc/filesystems").read_text().split()
        if self.kind not in known:
            return f"the kernel has no {self.kind}"
        found = subprocess.run(["sh", "-c", f"command -v {self.make[0]}"], capture_output=True)
        return "" if found.returncode == 0 else f"there is no {self.make[0]}"

    def formatted(self, folder):
        """Returns the blocks of an empty file system."""
        path = Path(folder) / "empty"
        write_image(path, {}, self.size)
        done = subprocess.run([*self.make, str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unable(f"{self.make[0]}: {done.stdout}{done.stderr}")
        blocks = blocks_of(path)
        path.unlink()
        return blocks

    def mount(self, device, target):
        mount(device, target, self.kind, self.options)

    def unmount(self, target):
        unmount(target)
        if self.kind == "btrfs":
            # btrfs remembers the newest generation of a UUID and refuses older ones.
            control = os.open("/dev/btrfs-control", os.O_RDWR)
            try:
                fcntl.ioctl(control, 0x50009405, bytearray(4096))  # BTRFS_IOC_FORGET_DEV: all
            except OSError:
                pass  # nothing to forget
            finally:
                os.close(control)


_EXT4 = ["mkfs.ext4", "-q", "-F", "-b", str(BLOCK), "-E",
         "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]  # fmt: skip
FILE_SYSTEMS = [
    FileSystem("ext4-ordered", "ext4", 16, _EXT4, "data=ordered"),
    FileSystem("ext4-writeback", "ext4", 16, _EXT4, "data=writeback"),
    FileSystem("ext4-noauto_da_alloc", "ext4", 16, _EXT4, "noauto_da_alloc"),
    FileSystem("xfs", "xfs", 300, ["mkfs.xfs", "-q", "-f", "-K"], "nouuid"),
    FileSystem("btrfs", "btrfs", 128, ["mkfs.btrfs", "-q", "-f", "-K"]),
]


def probe(folder):
    """Raises Unable if a disk cannot be logged and mounted here."""
    kind = FILE_SYSTEMS[0]
    if kind.missing():
        raise Unable(kind.missing())
    own_mounts()
    folder = Path(folder)
    blocks = kind.formatted(folder)
    disk = LoggedDisk(folder / "probe", blocks, kind.size)
    target = folder / "mounted"
    target.mkdir(exist_ok=True)
    try:
        kind.mount(disk.device.path, target)
        (target / "file").write_bytes(b"x")
        unmount(target)
    finally:
        log = disk.close()
    if not any(data is None for _, _, data in log):
        raise Unable("the kernel does not flush the cache of a loop device over FUSE")
    cuts = Cuts(blocks, log)
    cuts.advance(len(log))
    write_image(folder / "again", cuts.state(random.Random(1), 1), kind.size)
    device = LoopDevice(folder / "again")
    try:
        kind.mount(device.path, target)
        unmount(target)
    finally:
        device.close()

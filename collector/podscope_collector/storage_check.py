"""Whether profiles can be stored now: tried, in bounded time, with the space that is left."""

import shutil
import threading
from typing import Final

from podscope_collector.storage import Storage, StorageError

# Of a store that does not answer the client would try again for minutes.
PATIENCE_S: Final = 15.0
_FEW_BYTES: Final = 1 << 30


def check_storage(storage: Storage, patience_s: float = PATIENCE_S) -> dict[str, str]:
    """Write a small file and remove it.

    Returns:
        ``root``, ``state`` (ok, warning or failed) and ``detail``, as the API has them.
    """
    problems: list[str] = []

    def attempt() -> None:
        try:
            storage.check_writable()
        except StorageError as error:
            problems.append(str(error))

    # A daemon: nobody has to wait for its end.
    thread = threading.Thread(target=attempt, name="storage-check", daemon=True)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        problems = [f"no answer within {patience_s:g} s; check the address and the network between"]
    if problems:
        return {"root": storage.root, "state": "failed", "detail": problems[0]}
    if storage.folder is None:
        return {"root": storage.root, "state": "ok", "detail": "can be written"}
    free = shutil.disk_usage(storage.folder).free
    detail = f"can be written, {free / 2**30:,.1f} GiB free"
    if free < _FEW_BYTES:
        detail += "; free space there, or choose another place, before a large capture"
        return {"root": storage.root, "state": "warning", "detail": detail}
    return {"root": storage.root, "state": "ok", "detail": detail}

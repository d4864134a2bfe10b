# SPDX-License-Identifier: Apache-2.0
"""Write a run's manifest during the run, in a thread and key by key.

The plan of a thousand hosts makes it 30 MB. Reading, encoding and writing that takes a second, which must not
block the daemon's event loop.
"""

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

from atoll_analysis.run_directory.atomic_files import replace_text
from atoll_analysis.run_directory.directory import RunDir
from atoll_analysis.run_directory.migrations import FORMAT


class ManifestWriter:
    """The only writer of a run's manifest. It keeps each key's text and encodes changed keys only.

    The file is as :meth:`RunDir.write_manifest` writes it.
    """

    def __init__(self, run: RunDir) -> None:
        self._path = run.path / "manifest.json"
        self._texts = _texts({"format": FORMAT, **run.manifest()})
        self._writing = threading.Lock()

    async def update(self, changed: Mapping[str, Any]) -> None:
        """As :meth:`write`, in a thread. A write that has begun is completed when this is cancelled."""
        await asyncio.to_thread(self.write, changed)

    def write(self, changed: Mapping[str, Any]) -> None:
        """Set some keys, at once: readers see the old manifest or the new one. Raises RunError; it is the old one then.

        It takes long for a large laboratory, once the plan is in it.
        """
        texts = _texts(changed)
        with self._writing:
            texts = self._texts | texts
            replace_text(self._path, "{\n" + ",\n".join(texts.values()) + "\n}\n")
            self._texts = texts


def _texts(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Each key with what it holds, as ``json.dumps`` with an indent of 1 writes it in an object."""
    return {key: json.dumps({key: value}, indent=1)[2:-2] for key, value in manifest.items()}

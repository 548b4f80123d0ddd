"""The tools of this repository: long experiments, which `make lab` lists, and programs that draw parts of the docs.

Importing this package puts the sources of all packages, and what their tests share, on the import path of this process
and of every Python that it starts. So each tool runs as `python -m lab.NAME` in a checkout.
"""

import os
import sys

from lab.repository import import_path

os.environ["PYTHONPATH"] = import_path()
sys.path[:0] = [folder for folder in import_path().split(os.pathsep) if folder not in sys.path]

# SPDX-License-Identifier: MIT
"""The list of other trainers' argument names is that of the installed packages, so that a new release shows
which names have no answer yet (tests/config/trainer_keys_test.cpp)."""

import subprocess
import sys
import unittest

from support import ROOT


class TrainerKeys(unittest.TestCase):
    # For an older Python there is no newer transformers.
    @unittest.skipIf(sys.version_info < (3, 11), "another version of transformers")
    def test_list_is_that_of_the_installed_packages(self):
        script = ROOT / "scripts/list_trainer_keys.py"
        done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"run {script} --write\n{done.stderr}")


if __name__ == "__main__":
    unittest.main()

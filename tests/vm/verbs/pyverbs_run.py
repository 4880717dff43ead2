# SPDX-License-Identifier: Apache-2.0
"""Runs rdma-core's own pyverbs tests in a guest: pyverbs_run.py TESTS NAMES [rdma-core's options]. TESTS is the folder
with the tests; NAMES is a file with the ids of the tests to run, or "-" for all. Prints "RESULT ID ok|skipped|failed
SECONDS TEXT" for each test."""
import importlib.machinery
import sys
import time
import unittest


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.begin, self.outcome = time.monotonic(), ("ok", "")

    def stopTest(self, test):
        super().stopTest(test)
        state, text = self.outcome
        print("RESULT", test.id(), state, f"{time.monotonic() - self.begin:.2f}", " ".join(text.split()), flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = ("skipped", reason)

    def addError(self, test, err):
        super().addError(test, err)
        self.outcome = ("failed", f"{err[0].__name__}: {err[1]}")

    addFailure = addError

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = ("failed", "was to fail, and did not")


def every(suite):
    for part in suite:
        yield from every(part) if isinstance(part, unittest.TestSuite) else [part]


folder, names = sys.argv[1:3]
sys.argv[1:3] = []
sys.path.insert(0, folder)
tests = importlib.machinery.SourceFileLoader("tests", f"{folder}/__init__.py").load_module()
sys.modules["args_parser"].parser.parse_args()
wanted = None if names == "-" else set(open(names, encoding="utf-8").read().split())
chosen = unittest.TestSuite(t for t in every(unittest.defaultTestLoader.loadTestsFromModule(tests)) if wanted is None or t.id() in wanted)
print("COUNT", chosen.countTestCases(), flush=True)
chosen.run(Result())

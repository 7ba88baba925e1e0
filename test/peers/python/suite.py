"""Runs test modules of Numba's CUDA suite and says how each test went, one JSON object a line.

    suite.py            lists the modules
    suite.py MODULE…    runs them, each in a child of its own; tests to leave out come on standard input

Lines: {"pid": NUMBER}, first; {"module": NAME, "tests": COUNT}; {"start": TEST};
{"end": TEST, "result": "ok" or "failed" or "skipped", "why": TEXT}; {"leave": MODULE, "status": EXIT STATUS}.
What tests print goes to standard error.
"""

import json
import os
import pkgutil
import sys
import unittest

SUITE = "numba.cuda.tests"

report = None


def say(**what):
    report.write(json.dumps(what) + "\n")
    report.flush()


class Result(unittest.TestResult):
    """One verdict a test: that of the first of its parts that did not pass."""

    def startTest(self, test):
        super().startTest(test)
        self.verdict, self.why = "ok", ""
        say(start=test.id())

    def stopTest(self, test):
        say(end=test.id(), result=self.verdict, why=self.why)
        super().stopTest(test)

    def note(self, verdict, why):
        if self.verdict != "failed":
            self.verdict, self.why = verdict, why

    def wrong(self, err):
        self.note("failed", f"{err[0].__name__}: {err[1]}".strip().splitlines()[0])
        sys.stderr.write(self._exc_info_to_string(err, self.current) + "\n")

    def addError(self, test, err):
        self.current = test
        if not hasattr(test, "_testMethodName"):  # what stands for a class or module that cannot be set up
            say(start=test.id())
            say(end=test.id(), result="failed", why=f"{err[0].__name__}: {err[1]}")
            return
        self.wrong(err)

    def addFailure(self, test, err):
        self.current = test
        self.wrong(err)

    def addSubTest(self, test, subtest, err):
        self.current = test
        if err is not None:
            self.wrong(err)

    def addSkip(self, test, reason):
        if not hasattr(self, "verdict") or not hasattr(test, "_testMethodName"):
            return
        self.note("skipped", reason)

    def addUnexpectedSuccess(self, test):
        self.note("failed", "unexpected success")


def modules():
    package = __import__(SUITE, fromlist=["x"])
    for found in pkgutil.walk_packages(package.__path__, SUITE + "."):
        if not found.ispkg and found.name.rpartition(".")[2].startswith("test_"):
            yield found.name


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def run(module, leave_out):
    tests = list(flatten(unittest.defaultTestLoader.loadTestsFromName(module)))
    say(module=module, tests=len(tests))
    # A suite of the tests that are left keeps the set-up of classes and modules.
    unittest.TestSuite(t for t in tests if t.id() not in leave_out).run(Result())


def main():
    global report
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    say(pid=os.getpid())
    import numba.cuda  # once, for all the children; it does not touch the driver yet

    names = sys.argv[1:]
    if not names:
        for name in sorted(modules()):
            say(module=name)
        return
    leave_out = set(sys.stdin.read().split())
    for name in names:
        child = os.fork()
        if child == 0:
            run(name, leave_out)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(leave=name, status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":  # tests that spawn processes import this file
    main()

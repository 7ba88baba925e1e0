"""Makes this directory's applications: python3 make.py [--target sm_90] [PROGRAM…]. ../README.md says what must be installed."""
import argparse
import os
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
import capture
import programs

STEPS = 4  # so many steps are written down, after one that compiles


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--target", default="sm_90")
    p.add_argument("--out", default=capture.HERE)
    p.add_argument("programs", nargs="*", help="NAME or NAME-small; default: all")
    args = p.parse_args()
    capture.install(args.target)
    made = f"torch {torch.__version__.split('+')[0]} (Inductor), test/corpus/triton/language.py, clang 19 for {args.target}; recipe inductor/make.py"
    names = args.programs or [n + s for n in programs.PROGRAMS for s in ("-small", "")]
    for name in names:
        small = name.endswith("-small")
        mode, rec = capture.session(args.target, args.out)
        torch.manual_seed(0)
        try:
            with mode:
                step = programs.PROGRAMS[name.removesuffix("-small")](rec, small)
                capture.recorder = None
                step()
                capture.recorder = rec
                with capture.Libraries():
                    for _ in range(STEPS):
                        step()
        except Exception as e:
            if os.environ.get("CORPUS_RAISE"):
                raise
            print(f"{name}: {type(e).__name__}: {str(e)[:400]}", file=sys.stderr, flush=True)
            continue
        rec.write(name + ("" if args.target == "sm_90" else "-" + args.target.replace("_", "")), made)


if __name__ == "__main__":
    main()

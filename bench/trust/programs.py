"""Programs for bench/trust: ordinary JAX, PyTorch and transformers, nothing of holdfast.

    python3 programs.py jax|threads|generate|churn --stop FILE

Each goes on until FILE exists and checks itself: it repeats the same work from the same start and compares the bits of
every result with those of the first time. It prints one line a repetition and exits 1 when a bit differs.
"""
import argparse
import os
import threading


def same(first, now, what):
    if first is not None and first != now:
        print(f"{what}: {now} instead of {first}", flush=True)
        os._exit(1)
    return now


def jax_program(going):
    """XLA's own allocator and many host threads; steps of a millisecond or two."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.35")
    import jax
    import jax.numpy as jnp

    def loss(w, x, y):
        for a in w[:-1]:
            x = jnp.tanh(x @ a)
        return jnp.mean((x @ w[-1] - y) ** 2)

    @jax.jit
    def step(w, x, y):
        l, g = jax.value_and_grad(loss)(w, x, y)
        return [a - 0.01 * b for a, b in zip(w, g)], l

    keys = jax.random.split(jax.random.key(1), 10)
    start = [jax.random.normal(k, (1024, 1024), jnp.float32) * 0.03 for k in keys[:8]]
    x, y = (jax.random.normal(k, (512, 1024), jnp.float32) for k in keys[8:])
    first = None
    while going():
        w = start
        for _ in range(200):
            w, l = step(w, x, y)
        first = same(first, float(l).hex(), "loss")
        yield


def threads_program(going):
    """Eager PyTorch in sixteen threads with streams of their own, that ask events and write pinned memory."""
    import torch

    def work(n):
        torch.cuda.set_device(0)
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        a = torch.arange(1 << 18, dtype=torch.int64).pin_memory()
        b = torch.empty(1 << 18, dtype=torch.int64, pin_memory=True)
        view, k = a.numpy(), 0
        with torch.cuda.stream(stream):
            while going():
                k += 1
                view[:] = n * 1000003 + k
                d = a.to("cuda", non_blocking=True)
                for _ in range(5):
                    d = d * 3 + n
                b.copy_(d, non_blocking=True)
                event.record()
                while not event.query():
                    stream.query()
                want = n * 1000003 + k
                for _ in range(5):
                    want = want * 3 + n
                if int(b.min()) != want or int(b.max()) != want:
                    print(f"thread {n}, round {k}: {int(b.min())} to {int(b.max())} instead of {want}", flush=True)
                    os._exit(1)
                rounds[n] = k

    rounds = [0] * 16
    for n in range(16):
        threading.Thread(target=work, args=(n,), daemon=False).start()
    seen = 0
    while going():
        if min(rounds) > seen:
            seen = min(rounds)
            yield


def generate_program(going):
    """transformers' generate on GPT-2 with random weights: allocates and frees all the time."""
    import torch
    import transformers
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda().eval()
    prompt = torch.randint(0, 50257, (4, 32), device="cuda")
    first = None
    while going():
        with torch.no_grad():
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, do_sample=False,
                                 pad_token_id=0)
        first = same(first, hash(tuple(out.flatten().tolist())), "tokens")
        yield


def churn_program(going):
    """Every tensor is an allocation of the driver's, and freed again."""
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    import torch
    first = None
    while going():
        g = torch.Generator(device="cuda").manual_seed(7)
        kept, total = [], 0
        for i in range(100):
            t = torch.randint(0, 1 << 20, ((i * 7919) % 4_000_000 + 1,), device="cuda", generator=g)
            kept.append(t)
            if len(kept) > 40:
                total += int(kept.pop((i * 31) % 40).sum())
        first = same(first, total + sum(int(t.sum()) for t in kept), "sum")
        yield


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program", choices=["jax", "threads", "generate", "churn"])
    p.add_argument("--stop", required=True)
    a = p.parse_args()
    going = lambda: not os.path.exists(a.stop)
    for n, _ in enumerate(globals()[a.program + "_program"](going)):
        print(f"repetition {n}", flush=True)
    print("good", flush=True)


main()

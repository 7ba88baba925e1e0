"""Models whose inference is recorded and replayed: eager PyTorch, random weights from a fixed seed.

    models.py MODEL --hints              what "holdfast record" is told of inputs and outputs
    models.py MODEL --dir DIR            computes once within the NVTX range "holdfast" (to be recorded), then on five
                                         other inputs; writes x.npy, y.npy (the range's) and x0.npy, y0.npy … there
    models.py MODEL --same DIR           how many of the six outputs there (r.npy, r0.npy …) have the bits of PyTorch's
    models.py MODEL --cold               one output, and how long after the process began it was there
    models.py MODEL --steady             median time of a pass as a CUDA graph

MODEL is mlp, or a classifier of torchvision by its name there (resnet50, vit_b_16, …).
"""

import argparse
import os
import time

SHAPES = {"mlp": ((32, 784), (32, 10))}


def shapes(name):
    return SHAPES.get(name, ((1, 3, 224, 224), (1, 1000)))


def text(shape):
    return ",".join(map(str, shape))


def build(torch, name):
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if name == "mlp":
        layers = [784, 1024, 1024, 1024, 10]
        model = torch.nn.Sequential()
        for i, (a, b) in enumerate(zip(layers, layers[1:])):
            model.append(torch.nn.Linear(a, b))
            if i < len(layers) - 2:
                model.append(torch.nn.GELU())
    else:
        import torchvision

        model = getattr(torchvision.models, name)(weights=None)
    return model.eval().cuda()


def since_start():
    """Seconds since this process began."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def record(torch, name, model, where):
    import numpy

    def save(what, tensor):
        numpy.save(os.path.join(where, what + ".npy"), tensor.numpy())

    generator = torch.Generator().manual_seed(2)
    inputs = [torch.randn(shapes(name)[0], generator=generator) for _ in range(6)]
    for _ in range(3):
        model(inputs[0].cuda()).cpu()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with torch.cuda.nvtx.range("holdfast"):
        y = model(inputs[0].cuda()).cpu()
    save("x", inputs[0])
    save("y", y)
    for i, x in enumerate(inputs[1:]):
        save(f"x{i}", x)
        save(f"y{i}", model(x.cuda()).cpu())


def same(where):
    import numpy

    count = 0
    for i in ["", 0, 1, 2, 3, 4]:
        try:
            y, r = (numpy.load(os.path.join(where, f"{what}{i}.npy")) for what in "yr")
        except OSError:
            continue
        count += y.dtype == r.dtype and y.shape == r.shape and y.tobytes() == r.tobytes()
    print(count)


def steady(torch, name, model):
    x = torch.randn(shapes(name)[0]).cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    times = []
    for _ in range(300):
        begun = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    print(f"{sorted(times)[150]:.6f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--hints", action="store_true")
    p.add_argument("--cold", action="store_true")
    p.add_argument("--steady", action="store_true")
    p.add_argument("--dir")
    p.add_argument("--same")
    args = p.parse_args()
    if args.hints:
        x, y = shapes(args.model)
        print(f"--in x:float32:{text(x)} --out y:float32:{text(y)}")
        return
    if args.same:
        same(args.same)
        return
    import torch

    with torch.no_grad():
        model = build(torch, args.model)
        if args.cold:
            model(torch.zeros(shapes(args.model)[0]).cuda()).cpu()
            print(f"{since_start():.3f}")
        elif args.steady:
            steady(torch, args.model, model)
        else:
            record(torch, args.model, model, args.dir)


main()

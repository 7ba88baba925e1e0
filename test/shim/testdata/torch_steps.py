"""Trains a small network, a few steps a line of standard input; answers with the loss. Deterministic."""
import sys
import torch

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.matmul.allow_tf32 = False
dev = "cuda"
net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                          torch.nn.Linear(32 * 30 * 30, 512),
                          torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(dev)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
ballast = torch.arange(1 << 26, device=dev, dtype=torch.float32)
static = torch.randn(64, 3, 32, 32, device=dev)
side = torch.cuda.Stream()


def step(i):
    g = torch.Generator(device=dev).manual_seed(i)
    x = torch.randn(64 + i % 7, 3, 32, 32, device=dev, generator=g)
    y = torch.randint(0, 10, (x.shape[0],), device=dev, generator=g)
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss


step(0)
torch.cuda.synchronize()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        net(static)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    out = net(static) * 2

n = 1
print("ready", flush=True)
for line in sys.stdin:
    word = line.split()
    if word[0] == "quit":
        break
    loss = 0.0
    for _ in range(int(word[1])):
        loss = step(n)
        n += 1
    graph.replay()
    torch.cuda.synchronize()
    print(n, loss.item().hex(), out.sum().item().hex(), ballast.sum().item().hex(), int(ballast[-1].item()),
          torch.cuda.memory_allocated() > 0, flush=True)

"""The networks of bench/replay/networks.py: eager PyTorch, random weights from a fixed seed.

    models.py --list                     all cases, a line each: name, inputs, outputs
    models.py CASE --dir DIR             computes once within the NVTX range "holdfast" (to be recorded), then five
                                         times more; writes there what went in and came out: x, y, then x0, y0, …
    models.py CASE --cold                one output, and how long after the process began it was there
    models.py --steady CASE…             median time of a pass as a CUDA graph of PyTorch's, of each

A case is a network's inference, five times on other inputs; or a training step, five times more on the same input, so
that each begins where the last one ended. Files hold the bytes of a tensor.
"""

import argparse
import os
import time

CASES = {}
SEED = 1
FRESH = 5


class Case:
    """What is recorded: make() gives a function of the inputs, on the GPU, that returns one tensor or several. Inputs
    are shapes, and for integers their bound; outputs may be shapes."""

    def __init__(self, make, inputs, outputs=("y",), train=False):
        self.make, self.inputs, self.outputs, self.train = make, inputs, dict.fromkeys(outputs), train

    def values(self, torch, i):
        g = torch.Generator().manual_seed(100 + (0 if self.train else i))
        return [
            torch.randint(0, top, shape, generator=g) if top else torch.randn(shape, generator=g)
            for shape, top in self.inputs.values()
        ]


def image(side=224, batch=1):
    return {"x": ((batch, 3, side, side), None)}


def tokens(batch, length, vocabulary, name="x"):
    return {name: ((batch, length), vocabulary)}


def inference(model, forward=None):
    model = model.eval().cuda()
    return forward(model) if forward else model


# ---- torchvision ----

TORCHVISION = """alexnet vgg16 resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 squeezenet1_1 mobilenet_v2
    mobilenet_v3_large shufflenet_v2_x1_0 mnasnet1_0 efficientnet_b0 efficientnet_v2_s regnet_y_800mf convnext_tiny
    vit_b_16 swin_t maxvit_t""".split()


def torchvision_model(name):
    def make(torch):
        import torchvision

        return inference(getattr(torchvision.models, name)(weights=None))

    return make


def googlenet(torch):
    import torchvision

    return inference(torchvision.models.googlenet(weights=None, init_weights=False, aux_logits=False))


def inception(torch):
    import torchvision

    return inference(torchvision.models.inception_v3(weights=None, init_weights=False, aux_logits=False))


def segmentation(name):
    def make(torch):
        import torchvision

        model = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
        return inference(model, lambda m: lambda x: m(x)["out"])

    return make


def detection(name):
    """Backbone and heads; what they find is a matter of the host's."""

    def make(torch):
        import torchvision

        model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)

        def forward(m):
            def run(x):
                found = m.head(list(m.backbone(x).values()))
                return found["cls_logits"], found["bbox_regression"]

            return run

        return inference(model, forward)

    return make


for name in TORCHVISION:
    CASES[name] = Case(torchvision_model(name), image())
CASES["googlenet"] = Case(googlenet, image())
CASES["inception_v3"] = Case(inception, image(299))
CASES["fcn_resnet50"] = Case(segmentation("fcn_resnet50"), image())
CASES["deeplabv3_resnet50"] = Case(segmentation("deeplabv3_resnet50"), image())
CASES["lraspp_mobilenet_v3"] = Case(segmentation("lraspp_mobilenet_v3_large"), image())
CASES["retinanet_heads"] = Case(detection("retinanet_resnet50_fpn"), image(320), ("y", "boxes"))
CASES["ssdlite_heads"] = Case(detection("ssdlite320_mobilenet_v3_large"), image(320), ("y", "boxes"))


# ---- timm ----


def timm_model(name):
    def make(torch):
        import timm

        return inference(timm.create_model(name, pretrained=False))

    return make


for name in ["convnext_nano", "vit_small_patch16_224", "swin_tiny_patch4_window7_224", "tf_efficientnetv2_b0"]:
    CASES["timm_" + name.split("_patch")[0]] = Case(timm_model(name), image())


# ---- transformers ----


def transformer(kind, config, forward):
    def make(torch):
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config[0])(**config[1]))
        return inference(model, forward)

    return make


BERT = ("BertConfig", {})
GPT2 = ("GPT2Config", {})
LLAMA = (
    "LlamaConfig",
    {
        "vocab_size": 32000,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
    },
)
T5 = ("T5Config", {})
WHISPER = ("WhisperConfig", {})
CLIP = ("CLIPConfig", {})

CASES["bert"] = Case(
    transformer("BertModel", BERT, lambda m: lambda x: m(input_ids=x).last_hidden_state), tokens(1, 128, 30000)
)
CASES["gpt2_prefill"] = Case(
    transformer("GPT2LMHeadModel", GPT2, lambda m: lambda x: m(input_ids=x, use_cache=False).logits),
    tokens(1, 128, 50000),
)
CASES["llama_prefill"] = Case(
    transformer("LlamaForCausalLM", LLAMA, lambda m: lambda x: m(input_ids=x, use_cache=False).logits),
    tokens(1, 128, 32000),
)


CASES["gpt2_prefill"].outputs = {"y": (1, 128, 50257)}  # they ask the device for a flag, too
CASES["llama_prefill"].outputs = {"y": (1, 128, 32000)}


def decoder(torch):
    """One token of a Llama-like decoder: rotary positions, grouped queries, a key-value cache of fixed size that holds
    a prompt of 64 already."""
    nn, F = torch.nn, torch.nn.functional
    width, heads, groups, size, room = 1024, 16, 4, 64, 128

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv = nn.Linear(width, (heads + 2 * groups) * size, bias=False)
            self.o = nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, 2816, bias=False), nn.Linear(width, 2816, bias=False)
            self.down = nn.Linear(2816, width, bias=False)
            self.register_buffer("k", torch.zeros(1, groups, room, size))
            self.register_buffer("v", torch.zeros(1, groups, room, size))

        def forward(self, x, at, cos, sin, mask):
            q, k, v = self.qkv(self.n1(x)).split([heads * size, groups * size, groups * size], -1)
            q, k, v = (t.view(1, x.shape[1], -1, size).transpose(1, 2) for t in (q, k, v))

            def turn(t):
                a, b = t.chunk(2, -1)
                return t * cos + torch.cat([-b, a], -1) * sin

            self.k.index_copy_(2, at, turn(k))
            self.v.index_copy_(2, at, v)
            y = F.scaled_dot_product_attention(turn(q), self.k, self.v, attn_mask=mask, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(1, x.shape[1], width))
            h = self.n2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(32000, width)
            self.layers = nn.ModuleList(Layer() for _ in range(12))
            self.last, self.head = nn.RMSNorm(width), nn.Linear(width, 32000, bias=False)

        def forward(self, x, at):
            f = 10000.0 ** (-torch.arange(0, size, 2, device=x.device) / size)
            f = (at[:, None] * f).repeat(1, 2)
            mask = torch.arange(room, device=x.device)[None] <= at[:, None]
            x = self.words(x)
            for layer in self.layers:
                x = layer(x, at, f.cos(), f.sin(), mask)
            return self.head(self.last(x))

    model, at = inference(Decoder()), torch.tensor([64], device="cuda")
    prompt = torch.randint(0, 32000, (1, 64), generator=torch.Generator().manual_seed(7)).cuda()
    model(prompt, torch.arange(64, device="cuda"))
    return lambda x: model(x, at)


CASES["decoder_step"] = Case(decoder, tokens(1, 1, 32000))
CASES["t5"] = Case(
    transformer(
        "T5ForConditionalGeneration",
        T5,
        lambda m: lambda x, d: m(input_ids=x, decoder_input_ids=d, use_cache=False).logits,
    ),
    {**tokens(1, 64, 32000), **tokens(1, 16, 32000, "d")},
)
CASES["whisper"] = Case(
    transformer(
        "WhisperForConditionalGeneration",
        WHISPER,
        lambda m: lambda x, d: m(input_features=x, decoder_input_ids=d, use_cache=False).logits,
    ),
    {"x": ((1, 80, 3000), None), **tokens(1, 8, 50000, "d")},
)
CASES["whisper"].outputs = {"y": (1, 8, 51865)}
CASES["clip"] = Case(
    transformer(
        "CLIPModel", CLIP, lambda m: lambda x, t: m(pixel_values=x, input_ids=t).logits_per_image
    ),
    {**image(), **tokens(2, 16, 49000, "t")},
)


# ---- others ----


def mlp_layers(torch, layers):
    model = torch.nn.Sequential()
    for i, (a, b) in enumerate(zip(layers, layers[1:])):
        model.append(torch.nn.Linear(a, b))
        if i < len(layers) - 2:
            model.append(torch.nn.GELU())
    return model


def mlp(torch):
    return inference(mlp_layers(torch, [784, 1024, 1024, 1024, 10]))


def recurrent(kind):
    def make(torch):
        model = getattr(torch.nn, kind)(128, 256, num_layers=2, batch_first=True)
        return inference(model, lambda m: lambda x: m(x)[0])

    return make


def unet(torch):
    """One denoising step: residual blocks with a time embedding, attention at the bottom, skips."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(8, a), nn.Conv2d(a, b, 3, padding=1)
            self.t = nn.Linear(256, b)
            self.n2, self.c2 = nn.GroupNorm(8, b), nn.Conv2d(b, b, 3, padding=1)
            self.skip = nn.Conv2d(a, b, 1)

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.t(t)[:, :, None, None]
            return self.c2(F.silu(self.n2(h))) + self.skip(x)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
            self.first = nn.Conv2d(4, 64, 3, padding=1)
            self.d1, self.d2, self.d3 = Block(64, 64), Block(64, 128), Block(128, 256)
            self.attention = nn.MultiheadAttention(256, 8, batch_first=True)
            self.u3, self.u2, self.u1 = Block(512, 128), Block(256, 64), Block(128, 64)
            self.last = nn.Conv2d(64, 4, 3, padding=1)

        def forward(self, x, t):
            f = torch.exp(torch.arange(32, device=x.device) * -0.3) * t[:, None]
            t = self.time(torch.cat([f.sin(), f.cos()], 1))
            a = self.d1(self.first(x), t)
            b = self.d2(F.avg_pool2d(a, 2), t)
            c = self.d3(F.avg_pool2d(b, 2), t)
            n, k, h, w = c.shape
            s = c.flatten(2).transpose(1, 2)
            s = self.attention(s, s, s, need_weights=False)[0].transpose(1, 2).reshape(n, k, h, w)
            s = self.u3(torch.cat([c, s], 1), t)
            s = self.u2(torch.cat([b, F.interpolate(s, scale_factor=2)], 1), t)
            s = self.u1(torch.cat([a, F.interpolate(s, scale_factor=2)], 1), t)
            return self.last(s)

    return inference(UNet())


CASES["mlp"] = Case(mlp, {"x": ((32, 784), None)})
CASES["lstm"] = Case(recurrent("LSTM"), {"x": ((4, 50, 128), None)})
CASES["gru"] = Case(recurrent("GRU"), {"x": ((4, 50, 128), None)})
CASES["unet_step"] = Case(unet, {"x": ((1, 4, 32, 32), None), "t": ((1,), None)})


# ---- training steps ----


def training(build, optimizer, amp=False, compiled=False):
    """Forward, backward and step; gives the loss and the first weights."""

    def make(torch):
        model = build(torch).train().cuda()
        opt = optimizer(torch, model.parameters())
        first = next(model.parameters())
        run = torch.compile(model) if compiled else model

        def step(x, target):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
                y = run(x)
                y = getattr(y, "logits", y)
                loss = torch.nn.functional.cross_entropy(y.float().flatten(0, -2), target.flatten())
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=False)
            return loss.detach(), first.detach()

        return step

    return make


def sgd(torch, p):
    return torch.optim.SGD(p, lr=0.05, momentum=0.9)


def adam(torch, p):
    return torch.optim.Adam(p, lr=1e-3, capturable=True)


def adamw(torch, p):
    return torch.optim.AdamW(p, lr=1e-3, fused=True)


def small_mlp(torch):
    return mlp_layers(torch, [784, 512, 512, 10])


def small_resnet(torch):
    import torchvision

    return torchvision.models.resnet18(weights=None, num_classes=10)


def small_vit(torch):
    import timm

    return timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10)


def small_gpt2(torch):
    import transformers

    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=4, n_embd=256, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False
        )
    )


def labelled(inputs, n, top=10):
    return {**inputs, "target": ((n,), top)}


FLAT = labelled({"x": ((64, 784), None)}, 64)
PICTURES = labelled(image(64, 16), 16)
for name, make, inputs in [
    ("train_mlp_sgd", training(small_mlp, sgd), FLAT),
    ("train_mlp_adam", training(small_mlp, adam), FLAT),
    ("train_mlp_compiled", training(small_mlp, sgd, compiled=True), FLAT),
    ("train_resnet18_sgd", training(small_resnet, sgd), PICTURES),
    ("train_resnet18_amp", training(small_resnet, sgd, amp=True), PICTURES),
    ("train_vit_adamw", training(small_vit, adamw), labelled(image(224, 4), 4)),
    ("train_gpt2_adamw", training(small_gpt2, adamw), {**tokens(2, 64, 50000), **tokens(2, 64, 50000, "target")}),
]:
    CASES[name] = Case(make, inputs, ("y", "w"), train=True)
CASES["train_gpt2_adamw"].outputs = {"y": (1,), "w": (50257, 256)}


# ---- what is done with them ----


def since_start():
    """Seconds since this process began."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def build(torch, case):
    torch.manual_seed(SEED)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    return case.make(torch)


def several(out):
    return out if isinstance(out, tuple) else (out,)


def record(torch, case, where):
    run = build(torch, case)

    def once(i):
        given = case.values(torch, i)
        return given, [t.contiguous().cpu() for t in several(run(*[t.cuda() for t in given]))]

    def save(names, tensors, i):
        for name, t in zip(names, tensors):
            with open(os.path.join(where, name + i), "wb") as f:
                f.write(t.numpy().tobytes())

    for _ in range(3):
        once(0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with torch.cuda.nvtx.range("holdfast"):
        given, got = once(0)
    first = got
    for i in range(FRESH + 1):
        save(case.inputs, given, str(i - 1) if i else "")
        save(case.outputs, got, str(i - 1) if i else "")
        given, got = once(i + 1)
    if not case.train and not all(torch.equal(a, b) for a, b in zip(first, once(0)[1])):
        print("PyTorch itself gives other bits the second time")


def captured(torch, run, given):
    """A pass as a CUDA graph of PyTorch's, and its outputs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(*given)
    return graph, several(out)


def steady(torch, case):
    run = build(torch, case)
    given = [t.cuda() for t in case.values(torch, 0)]
    graph, _ = captured(torch, run, given)  # whose memory must stay
    times = []
    for _ in range(300):
        begun = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return sorted(times)[150]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("case", nargs="*")
    p.add_argument("--list", action="store_true")
    p.add_argument("--cold", action="store_true")
    p.add_argument("--steady", action="store_true")
    p.add_argument("--dir")
    args = p.parse_args()
    if args.list:
        for name, case in CASES.items():
            outputs = [n + (":float32:" + ",".join(map(str, s)) if s else "") for n, s in case.outputs.items()]
            print(name, "train" if case.train else "infer", " ".join(case.inputs), " ".join(outputs), sep="\t")
        return
    import contextlib

    import torch

    for name in args.case:
        case = CASES[name]
        with contextlib.nullcontext() if case.train else torch.no_grad():
            if args.steady:
                try:
                    print(name, f"{steady(torch, case):.6f}", flush=True)
                except Exception as e:  # the next ones are measured all the same
                    print(name, "not measured:", str(e).splitlines()[0][:80], flush=True)
                torch.cuda.empty_cache()
            elif args.cold:
                several(build(torch, case)(*[t.cuda() for t in case.values(torch, 0)]))[0].cpu()
                print(f"{since_start():.3f}")
            else:
                record(torch, case, args.dir)


if __name__ == "__main__":
    main()

package sim

// Default is eight tenants with the proportions of common models at batch size one: times alone of 0.2 to 3 ms,
// deadlines of 2 to 10 times that. The figures are made up; recordings will bring their own.
func Default() Config {
	return Config{GPUs: 1, Seconds: 2, Seed: 1, Arrivals: "poisson", Noise: 0.05, Overhead: 3, Tenants: []Tenant{
		{Name: "resnet18", SLO: 4, Instances: 4, Parts: stages(4, 150, 0.5, 0.35)},
		{Name: "resnet50", SLO: 8, Instances: 4, Parts: stages(8, 160, 0.6, 0.4)},
		{Name: "mobilenet", SLO: 3, Instances: 4, Parts: stages(4, 100, 0.25, 0.35)},
		{Name: "bert", SLO: 12, Instances: 4, Parts: stages(12, 200, 0.8, 0.45)},
		{Name: "gpt2-decode", SLO: 6, Instances: 4, Parts: stages(6, 200, 0.2, 0.5)},
		{Name: "lstm", SLO: 2, Instances: 4, Parts: stages(1, 200, 0.1, 0.15)},
		{Name: "resnet50-tight", SLO: 2.6, Instances: 4, Parts: stages(8, 160, 0.6, 0.4)},
		{Name: "bert-loose", SLO: 30, Instances: 4, Parts: stages(15, 200, 0.8, 0.45)},
	}}
}

// stages are n parts of us microseconds, which get narrower by and by, as networks do.
func stages(n int, us, width, bandwidth float64) []Part {
	parts := make([]Part, n)
	for i := range parts {
		f := 1 - 0.5*float64(i)/float64(n)
		parts[i] = Part{Alone: us, Width: width * f, Bandwidth: bandwidth}
	}
	return parts
}

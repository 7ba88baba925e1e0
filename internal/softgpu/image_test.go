package softgpu

import "testing"

func TestImageCheck(t *testing.T) {
	good := Image{Address: testLo, Width: 8, Height: 4, Pitch: 64, Format: TexelU8, Channels: 4}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func(*Image){
		"format":   func(m *Image) { m.Format = 5 },
		"channels": func(m *Image) { m.Channels = 3 },
		"width":    func(m *Image) { m.Width = 0 },
		"pitch":    func(m *Image) { m.Pitch = 16 },
		"address":  func(m *Image) { m.Address++ },
		"linear":   func(m *Image) { m.Linear = true },
		"layers":   func(m *Image) { m.Depth, m.Layers = 2, 2 },
	} {
		m := good
		bad(&m)
		if m.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
		if (&Texture{Levels: []Image{m}}).Check() == nil {
			t.Errorf("%s: accepted in a texture", name)
		}
	}
	if (&Texture{Levels: []Image{good}, Filter: true}).Check() == nil {
		t.Error("linear filter of integers accepted")
	}
	if err := (&Texture{Levels: []Image{good}, Filter: true, ReadFloat: true}).Check(); err != nil {
		t.Error(err)
	}
}

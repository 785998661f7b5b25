package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
)

// pictures draws pictures of every kind onto each other, with masks and without, and encodes them.
func pictures(w io.Writer) {
	r := rand.New(rand.NewPCG(1, 2))
	bounds := image.Rect(0, 0, 37, 23)
	palette := color.Palette{color.Black, color.White, color.RGBA{200, 10, 10, 255}, color.RGBA{0, 90, 0, 128}}
	kinds := func() []draw.Image {
		return []draw.Image{
			image.NewRGBA(bounds), image.NewRGBA64(bounds), image.NewNRGBA(bounds), image.NewNRGBA64(bounds), image.NewGray(bounds),
			image.NewGray16(bounds), image.NewAlpha(bounds), image.NewAlpha16(bounds), image.NewCMYK(bounds), image.NewPaletted(bounds, palette),
		}
	}
	sources := []image.Image{image.NewUniform(color.NRGBA{10, 20, 30, 99}), image.NewUniform(color.White), image.NewYCbCr(bounds, image.YCbCrSubsampleRatio420)}
	for _, source := range kinds() {
		for range 400 {
			source.Set(r.IntN(37), r.IntN(23), color.NRGBA{uint8(r.Uint32()), uint8(r.Uint32()), uint8(r.Uint32()), uint8(r.Uint32())})
		}
		sources = append(sources, source)
	}
	masks := []image.Image{nil, sources[0], sources[3+6], sources[3]}
	for _, onto := range kinds() {
		for n, source := range sources {
			at := image.Pt(r.IntN(9)-4, r.IntN(9)-4)
			for _, op := range []draw.Op{draw.Over, draw.Src} {
				draw.Draw(onto, bounds.Inset(2), source, at, op)
				draw.DrawMask(onto, bounds.Add(at), source, at, masks[n%len(masks)], image.Pt(1, 1), op)
			}
			draw.FloydSteinberg.Draw(onto, bounds, source, at)
		}
		opaque, ok := onto.(interface{ Opaque() bool })
		fmt.Fprintln(w, ok && opaque.Opaque())
		var packed bytes.Buffer
		fmt.Fprintln(w, png.Encode(&packed, onto), jpeg.Encode(&packed, onto, nil), gif.Encode(&packed, onto, nil))
		w.Write(packed.Bytes())
		unpacked, format, err := image.Decode(&packed)
		fmt.Fprintln(w, unpacked, format, err)
	}
}

package metal

import (
	"embed"
	"strings"
)

//go:embed kernels/*.metal
var kernelFiles embed.FS

// kernelSource returns the kernels in Metal's language, as the device compiles them when it is opened.
func kernelSource() string {
	var b strings.Builder
	for _, name := range []string{"common", "elements", "rows", "top", "formats", "matmul", "attention"} {
		text, err := kernelFiles.ReadFile("kernels/" + name + ".metal")
		if err != nil {
			panic(err) // the file is part of the program
		}
		b.Write(text)
	}
	return b.String()
}

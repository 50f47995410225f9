module github.com/minfer/minfer/examples

go 1.26.0

require github.com/minfer/minfer v0.0.0

replace github.com/minfer/minfer => ../

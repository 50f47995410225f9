module github.com/minfer/minfer/backend/cuda

go 1.26.0

require (
	github.com/minfer/minfer v0.0.0
	golang.org/x/exp v0.0.0-20250819193227-8b4c13bb791b
	gorgonia.org/cu v0.9.6
)

require (
	github.com/google/uuid v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/sys v0.38.0 // indirect
	golang.org/x/text v0.39.0 // indirect
)

replace github.com/minfer/minfer => ../../

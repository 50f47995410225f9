module github.com/minfer/minfer/backend/cuda

go 1.26.0

require (
	github.com/minfer/minfer v0.0.0
	gorgonia.org/cu v0.9.6
)

require (
	github.com/google/uuid v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
)

replace github.com/minfer/minfer => ../../

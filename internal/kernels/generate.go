package kernels

// Each program in a folder X of _asm, a module of its own, writes X_amd64.s and its stubs,
// X_amd64.go; neon writes those of arm64.

//go:generate env GOWORK=off go -C _asm run ./attention -pkg kernels -out ../attention_amd64.s -stubs ../attention_amd64.go
//go:generate env GOWORK=off go -C _asm run ./matmulfloat -pkg kernels -out ../matmulfloat_amd64.s -stubs ../matmulfloat_amd64.go
//go:generate env GOWORK=off go -C _asm run ./matmulint -pkg kernels -out ../matmulint_amd64.s -stubs ../matmulint_amd64.go
//go:generate env GOWORK=off go -C _asm run ./pack -pkg kernels -out ../pack_amd64.s -stubs ../pack_amd64.go
//go:generate env GOWORK=off go -C _asm run ./rows -pkg kernels -out ../rows_amd64.s -stubs ../rows_amd64.go
//go:generate env GOWORK=off go -C _asm run ./neon -pkg kernels -out ../neon_arm64.s -stubs ../neon_arm64.go

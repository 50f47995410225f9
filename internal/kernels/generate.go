package kernels

// Each program in a folder X of _asm, a module of its own, writes X_amd64.s and its stubs,
// X_amd64.go. Programs find shared parts in _asm itself.

//go:generate sh -c "cd _asm && for p in */main.go; do n=$(dirname $p); GOWORK=off go run ./$n -pkg kernels -out ../${n}_amd64.s -stubs ../${n}_amd64.go || exit 1; done"

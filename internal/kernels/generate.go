package kernels

// Each program in a folder X of _asm, a module of its own, writes X_amd64.s and its stubs,
// X_amd64.go; neon writes those of arm64.

//go:generate sh -c "cd _asm && for p in */main.go; do n=$(dirname $p); a=amd64; [ $n != neon ] || a=arm64; GOWORK=off go run ./$n -pkg kernels -out ../${n}_$a.s -stubs ../${n}_$a.go || exit 1; done"

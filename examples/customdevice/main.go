package main

func main() { _ = hookMain }

var hookMain int

// Package clients tests the server with the client libraries that programs use: the official
// ones for Go and for Node.js, and a browser with the server's own page.
//
// The tests build the server and run it. They are a package of their own because the client for
// Go takes a minute to compile. Those that need Node.js, its packages or a browser are skipped
// where these cannot be had.
package clients

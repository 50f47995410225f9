package main

import (
	"embed"
	"net/http"
	"path"
)

//go:embed page
var page embed.FS

// pageFiles are the files of the page that is served at /.
var pageFiles = []string{"index.html", "style.css", "chat.js", "markdown.js", "icon.svg"}

// contentTypes are those of the files, whatever the machine makes of their names.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// servePage serves a file of the page.
func servePage(name string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		data, err := page.ReadFile("page/" + name)
		if err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Type", contentTypes[path.Ext(name)])
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		// The page needs nothing from elsewhere, and what a model says cannot change that.
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, err = w.Write(data)
		return err
	}
}

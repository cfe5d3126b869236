// Makes the pictures in docs, and uses /docs as a person does; a module of its own, so that the browser's protocol is nobody's dependency.
module github.com/odometer-metering/odometer/dev/browser

go 1.26.8

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect

// Package report shows what a load test measured: [Write] as one HTML page that
// needs nothing but itself, [SVG] as a picture, [Text] as plain text.
//
// The page's plots are SVG made here; a script of a few lines only shows the
// values under the pointer. Its Content-Security-Policy allows that script and
// the style sheet by their hashes and nothing else, so that not even a mistake
// in escaping would let a server's texts do anything. Plots keep their text size
// on any width: the curves stand in a nested svg that is stretched, everything
// else is placed in per cent.
package report

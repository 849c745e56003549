// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"fmt"
	"html"
	"strings"
)

// Chart has horizontal bars in groups.
type Chart struct {
	Title string
	// Legend names the parts of each bar.
	Legend []string
	Groups []Group
	// ScaleGroups gives the longest bar of each group the full width, for groups of different
	// magnitudes. Otherwise all bars have the same scale.
	ScaleGroups bool
}

// Group is a set of bars under a name.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is a bar of stacked parts with a text behind it.
type Bar struct {
	Name, Text string
	Parts      []float64
}

func (b Bar) length() (sum float64) {
	for _, part := range b.Parts {
		sum += part
	}
	return sum
}

func (g Group) longest() (most float64) {
	for _, b := range g.Bars {
		most = max(most, b.length())
	}
	return most
}

const (
	chartWidth, barLeft, barWidth = 760, 190, 440
	line, barHeight               = 18, 12
)

var colors = []string{"#9aa5b1", "#2f6db5", "#d9822b"}

// SVG returns the chart as an SVG document.
func (c Chart) SVG() string {
	var b strings.Builder
	y := 2 * line
	text(&b, 8, y-line/2, "bold", c.Title)
	for i, name := range c.Legend {
		x := barLeft + i*barWidth/2
		rect(&b, float64(x), y+line/2-barHeight+2, barHeight, colors[i])
		text(&b, x+line, y+line/2, "normal", name)
	}
	y += 2 * line
	var longest float64
	for _, g := range c.Groups {
		longest = max(longest, g.longest())
	}
	for _, g := range c.Groups {
		text(&b, 8, y, "bold", g.Name)
		y += line
		if c.ScaleGroups {
			longest = g.longest()
		}
		for _, bar := range g.Bars {
			bar.draw(&b, y, longest)
			y += line
		}
		y += line / 2
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12" role="img">
<title>%s</title>
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, chartWidth, y, html.EscapeString(c.Title), b.String())
}

func (b Bar) draw(out *strings.Builder, y int, longest float64) {
	text(out, 20, y, "normal", b.Name)
	x := float64(barLeft)
	for i, part := range b.Parts {
		if longest > 0 {
			width := part / longest * barWidth
			rect(out, x, y-barHeight+2, width, colors[i])
			x += width
		}
	}
	text(out, int(x)+6, y, "normal", b.Text)
}

func text(b *strings.Builder, x, y int, weight, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="%s" fill="#222">%s</text>`+"\n", x, y, weight, html.EscapeString(s))
}

func rect(b *strings.Builder, x float64, y int, width float64, color string) {
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, width, barHeight, color)
}

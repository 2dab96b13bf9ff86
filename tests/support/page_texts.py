"""Finds the visible texts of a page in a browser, and texts that overlap, are cut off or are hard to read."""

from typing import Any

# The source of LEAST_CONTRAST is success criterion 1.4.3 of WCAG 2.1.
LEAST_PIXELS, LEAST_CONTRAST = 12, 4.5

# A script that returns the visible texts of a page. A text that its parent cuts off counts with its visible part.
TEXTS = """(() => {
  const styles = new Map();
  const styleOf = each => styles.get(each) || styles.set(each, getComputedStyle(each)).get(each);
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const linear = part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const luminance = colour => {
    const [r, g, b] = colour.map(each => linear(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = each => {
    for (; each; each = each.parentElement) {
      const found = numbers(styleOf(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    if (!text) continue;
    const parent = walker.currentNode.parentElement, range = document.createRange(), style = styleOf(parent);
    range.selectNodeContents(walker.currentNode);
    const both = [luminance(numbers(style.color).slice(0, 3)), luminance(behind(parent))];
    const contrast = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    for (const whole of range.getClientRects()) {
      let {left, right, top, bottom} = whole;
      for (let each = parent; each; each = each.parentElement) {
        if (styleOf(each).overflowX !== "hidden") continue;
        const edge = each.getBoundingClientRect();
        [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
        [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
      }
      if (right - left < 1 || bottom - top < 1) continue;
      const cut = whole.width - (right - left) > 1 || whole.height - (bottom - top) > 1;
      found.push({text, left, right, top, bottom, contrast, cut, pixels: parseFloat(style.fontSize)});
    }
  }
  const pictures = [...document.querySelectorAll("[role=img]")];
  return {
    texts: found,
    width: document.documentElement.scrollWidth,
    title: document.title,
    pictures: pictures.length,
    unlabelled: pictures.filter(each => !each.ariaLabel).length,
  };
})()"""


def overlaps(texts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Returns the pairs of texts that have more than a pixel in common."""
    found = []
    ordered = sorted(texts, key=lambda each: each["top"])
    for number, one in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other["top"] >= one["bottom"] - 1:
                break
            if min(one["right"], other["right"]) - max(one["left"], other["left"]) > 1:
                found.append((one["text"], other["text"]))
    return found

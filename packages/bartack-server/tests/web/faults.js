// What is wrong with the look of a page: texts that an ancestor clips without an ellipsis or a scroll bar, labels of
// buttons that break, and texts that overlap.
() => {
  const faults = [];
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ opacityProperty: true, contentVisibilityAuto: true })) continue;
    if (element.closest(".unseen, script, style, svg, math, [inert], option")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter((rect) => rect.width > 1 && rect.height > 1);
    if (!rects.length) continue;
    let isForReaders = false; // shown to screen readers only
    for (let parent = element; parent; parent = parent.parentElement) isForReaders ||= getComputedStyle(parent).clipPath !== "none";
    if (isForReaders) continue;
    const name = `${element.tagName}.${element.className} ${JSON.stringify(node.data.trim().slice(0, 40))}`;
    const button = element.closest("button, .b, .chip, .pill");
    if (button?.matches(".b, .pill") && !button.closest(".allow") && new Set(rects.map((rect) => Math.round(rect.top))).size > 1) faults.push(`breaks: ${name}`);
    let isOutside = false;
    for (let parent = element; parent && parent !== document.body; parent = parent.parentElement) {
      const style = getComputedStyle(parent);
      const box = parent.getBoundingClientRect();
      const ellipsis = style.textOverflow === "ellipsis";
      const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY);
      if (scrolls || ellipsis) { isOutside = rects.some((rect) => rect.right > box.right + 1 || rect.bottom > box.bottom + 1 || rect.top < box.top - 1); if (isOutside) break; continue; }
      if (/hidden|clip/.test(style.overflowX) && rects.some((rect) => rect.right > box.right + 1 || rect.left < box.left - 1)) faults.push(`clipped: ${name} by ${parent.tagName}.${parent.className}`);
    }
    if (isOutside) continue;
    for (const rect of rects) {
      if (rect.right > innerWidth + 1 || rect.left < -1) faults.push(`off the page: ${name}`);
      const layer = element.closest(".pop, .toast, .decide, message-composer, .top, session-list, run-inspector, .talk");
      for (const [other, otherLayer, otherName] of boxes) {
        if (otherLayer !== layer) continue;
        const wide = Math.min(rect.right, other.right) - Math.max(rect.left, other.left);
        const high = Math.min(rect.bottom, other.bottom) - Math.max(rect.top, other.top);
        if (wide > 2 && high > 4) faults.push(`overlap: ${name} and ${otherName}`);
      }
      boxes.push([rect, layer, name]);
    }
  }
  return [...new Set(faults)];
}

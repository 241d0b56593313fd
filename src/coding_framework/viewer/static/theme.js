// Before the page is drawn, so that no other theme flashes up.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;

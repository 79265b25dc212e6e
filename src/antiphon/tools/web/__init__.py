"""Web search: what a request declares, the engines that are asked, and pages that are opened."""

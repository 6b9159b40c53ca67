"""The causes that a verdict may give: what each wants to see, how it says it, and why not."""

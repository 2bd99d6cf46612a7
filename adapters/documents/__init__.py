"""Documents on paper and for machines: PDF, HTML, CSV, JSON, and EN 16931 e-invoices."""

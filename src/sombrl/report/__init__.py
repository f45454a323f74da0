"""`sombrl report`: runs and tables of results as one page that opens without a network."""

from sombrl.report.live import watch
from sombrl.report.page import page, write_report

__all__ = ["page", "watch", "write_report"]

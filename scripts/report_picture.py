"""The picture of the report in the README, from a real run: python scripts/report_picture.py RUN docs/report.png

Needs chromium and its driver, and `selenium` (extra `dev`). The run's own report is written to a folder of its own; the
top of the page is what is shown, in the light theme.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

WIDTH, HEIGHT = 1200, 1060


def picture(run: Path, to: Path) -> None:
    """Write the top of a run's report as a PNG."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    from evotrainer import api

    options = webdriver.ChromeOptions()
    options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"):
        options.add_argument(flag)
    options.add_argument(f"--window-size={WIDTH},{HEIGHT}")
    with tempfile.TemporaryDirectory() as folder:
        page = api.open_run(run).report(Path(folder) / "report.html")
        driver = webdriver.Chrome(
            options=options, service=Service(os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver"))
        )
        try:
            driver.set_window_size(WIDTH, HEIGHT)
            driver.get(page.as_uri())
            WebDriverWait(driver, 60).until(lambda d: d.execute_script("return document.readyState") == "complete")
            driver.save_screenshot(str(to))
        finally:
            driver.quit()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    picture(Path(sys.argv[1]), Path(sys.argv[2]))

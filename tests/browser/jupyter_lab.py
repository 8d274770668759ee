"""A JupyterLab server with nothing of this user's in it, and a browser that works in it as a person would."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import nbformat
import psutil
from playwright.sync_api import ConsoleMessage, Locator, Page, expect, sync_playwright
from processes import eventually, is_alive

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TOKEN = "a-token-for-this-test"
SETTINGS = {
    # All cells are in the page, also those that are out of sight.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
MOST_BYTES_OF_A_PICTURE = 300_000
SECONDS = 60  # that a page may take to show something, on a slow machine
# A role in an accessibility tree that has no name: `- textbox`, `- button [disabled]`.
UNNAMED = re.compile(
    r"^\s*- (?:textbox|spinbutton|combobox|listbox|checkbox|button|img|progressbar)\s*(?:\[|:|$)", re.M
)
CELLS = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    return {
        kernel: panel.sessionContext.session?.kernel?.status ?? "none",
        cells: Array.from(panel.content.model.cells).filter(cell => cell.type === "code").map(cell => cell.toJSON()),
    };
}"""


def find_browser() -> str | None:
    """The program of a browser that Playwright can drive; None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of these code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


class Lab:
    """A running JupyterLab whose root is `home`/work; all else that it keeps is in `home` too."""

    def __init__(self, home: Path) -> None:
        self.root = home / "work"
        self.root.mkdir(exist_ok=True)
        for name, values in SETTINGS.items():
            path = home / "settings" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        self._port = _free_port()
        self._log = home / "lab.log"
        options = {
            "ServerApp.port": self._port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root,
            "IdentityProvider.token": TOKEN,
            "LabApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
        }
        with self._log.open("w") as log:
            self.process = psutil.Popen(
                [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
                + [f"--{name}={value}" for name, value in options.items()],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(home),
            )

    def url(self, path: str) -> str:
        """The address of a page of this server."""
        return f"http://127.0.0.1:{self._port}/{path}?token={TOKEN}"

    def wait_until_up(self) -> None:
        """Wait until the server answers."""
        assert eventually(lambda: self.process.poll() is not None or self._answers(), SECONDS), self._log.read_text()
        assert self.process.poll() is None, self._log.read_text()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url("api/status"), timeout=5):
                return True
        except OSError:
            return False

    def descendants(self) -> list[psutil.Process]:
        """All that the server has started: kernels, and what these have started."""
        return self.process.children(recursive=True) if self.process.is_running() else []

    def shut_down(self) -> None:
        """End the server as Ctrl-C, a closed terminal and a hub do: by a signal, which it takes time to obey."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


def left(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of these processes that are still there."""
    return [process for process in processes if is_alive(process.pid)]


def ranks_of(lab: Lab) -> list[psutil.Process]:
    """The processes that are ranks: children of the server that forks them."""
    servers = [process for process in lab.descendants() if "course_lib.runs.server" in " ".join(process.cmdline())]
    return left([rank for server in servers for rank in server.children()])


class Notebook:
    """A notebook that is open in Lab, and the errors that the page reports from now on."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page, self._path = page, path
        self.console_errors: list[str] = []
        page.on("console", self._note)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(message.text)

    def save(self) -> Path:
        """File > Save Notebook; where it is then."""
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        return self._path

    def run_all(self) -> None:
        """Run > Run All Cells."""
        self.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def clear(self) -> None:
        """Edit > Clear Outputs of All Cells."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")

    def restart(self) -> None:
        """Kernel > Restart Kernel…, and yes to the question."""
        self.page.evaluate("void window.jupyterapp.commands.execute('notebook:restart-kernel')")
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()

    def take_picture(self, path: Path, top: Locator, width: int, height: int) -> None:
        """A picture for the documentation: what stands from `top` on, without the list of files."""
        size = self.page.viewport_size
        self.page.evaluate("window.jupyterapp.shell.collapseLeft()")
        self.page.set_viewport_size({"width": width, "height": height})
        top.evaluate("element => element.scrollIntoView()")
        self.page.screenshot(path=path, animations="disabled")
        assert path.stat().st_size < MOST_BYTES_OF_A_PICTURE
        self.page.set_viewport_size(size)

    def cells(self) -> list[dict[str, Any]]:
        """The code cells, as they would be saved."""
        return self.page.evaluate(CELLS)["cells"]

    def is_done(self) -> bool:
        """Whether all code cells have run, or one of them ended the others by an error."""
        state = self.page.evaluate(CELLS)
        ran = all(cell["execution_count"] for cell in state["cells"] if cell["source"])
        return state["kernel"] == "idle" and (ran or bool(errors(state["cells"])))


def errors(cells: list[dict[str, Any]]) -> list[str]:
    """What went wrong in these cells."""
    outputs = [output for cell in cells for output in cell["outputs"]]
    return [f"{output['ename']}: {output['evalue']}" for output in outputs if output["output_type"] == "error"]


@contextmanager
def opened(lab: Lab, name: str, screenshot: Path) -> Iterator[Notebook]:
    """Open a notebook in a browser; where what follows fails, a picture of the page is left in `screenshot`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        with closing(browser):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.set_default_timeout(1000 * SECONDS)
            expect.set_options(timeout=1000 * SECONDS)
            try:
                page.goto(lab.url(f"lab/tree/{name}"))
                page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext !== undefined")
                page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.ready")
                assert eventually(lambda: page.evaluate(CELLS)["kernel"] == "idle", SECONDS)
                yield Notebook(page, lab.root / name)
            except BaseException:
                page.screenshot(path=screenshot, full_page=True)
                raise


def _environment(home: Path) -> dict[str, str]:
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    # No GPU is seen: a lesson must run without one, on any machine that this test runs on.
    return {**os.environ, **{name: str(home / folder) for name, folder in folders.items()}, "CUDA_VISIBLE_DEVICES": ""}


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

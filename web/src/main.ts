// Opens the page: shows the document of the file or of the server, and the view that the address encodes.

import { make } from "./dom";
import { embedded } from "./host";
import { Page } from "./page";
import { Server } from "./server";

const root = document.getElementById("page");
if (root) {
  const server = Server.ofPage();
  const shown = new Page(root, server).open(server?.first() ?? embedded);
  shown.then(
    () => (document.documentElement.dataset.ready = "true"),
    (error: unknown) => {
      const message = error instanceof Error ? error.message : String(error);
      root.append(make("p", { class: "failed", role: "alert" }, `This page cannot be shown: ${message}`));
      document.documentElement.dataset.ready = "failed";
    },
  );
}

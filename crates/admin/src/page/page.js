"use strict";
new EventSource("/events").onmessage = (event) => {
  document.getElementById("view").textContent = JSON.stringify(JSON.parse(event.data), null, 2);
};

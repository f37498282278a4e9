/* SPDX-License-Identifier: GPL-3.0-or-later */
(function () {
  var form = document.getElementById('search');
  var input = document.getElementById('search-text');
  var status = document.getElementById('search-status');
  var groups = Array.from(document.querySelectorAll('.group'), function (group) {
    var nodes = Array.from(group.querySelectorAll('.node'), function (node) {
      return { element: node, text: (node.textContent + ' ' + group.dataset.search).toLowerCase() };
    });
    return { element: group, nodes: nodes };
  });
  function search() {
    var query = input.value.trim().toLowerCase();
    var words = query.split(/\s+/);
    var total = 0;
    groups.forEach(function (group) {
      var matches = 0;
      group.nodes.forEach(function (node) {
        var match = words.every(function (word) { return node.text.includes(word); });
        node.element.hidden = !match;
        matches += match;
      });
      group.element.hidden = !!query && !matches;
      total += matches;
    });
    status.textContent = query ? total + ' found' : '';
  }
  form.hidden = false;
  input.addEventListener('input', search);
  search();
})();

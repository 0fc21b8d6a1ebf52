# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal."""


def text(head, rows):
    """Return lines with columns; numbers are aligned to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and all(_is_number(cell) for cell in column[1:])
             for column in columns]

    def line(cells):
        return '  '.join(
            cell.rjust(width) if flag else cell.ljust(width)
            for cell, width, flag in zip(cells, widths, right, strict=True)
        ).rstrip()

    return '\n'.join([line(head), line(['-' * width for width in widths]),
                      *map(line, rows)])


def _is_number(cell):
    return cell in ('', '-') or cell.replace('.', '', 1).isdigit()

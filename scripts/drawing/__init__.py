"""How the tasks of the catalogues are drawn (`draw_tasks.py`). What is drawn is data of the
package, in which nothing of this runs."""

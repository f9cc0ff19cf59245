/* page - a page to try a server with */
#ifndef CMD_TP_RUN_PAGE_H
#define CMD_TP_RUN_PAGE_H

/* HTML that needs nothing but itself and the server's own paths. */
extern const char page_html[];

#endif
